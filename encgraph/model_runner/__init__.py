"""Run a whole vision-language model: images through encoder graphs, tokens through decoder graphs."""
