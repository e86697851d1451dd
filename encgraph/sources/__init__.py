"""Where requests come from: folders, tables, chats, request lists and built-in profiles."""
