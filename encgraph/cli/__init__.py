"""The command line: `app` has the commands, one light file a pair; what they do is imported when they run."""
