"""Run a whole vision-language model: images and clips through encoder graphs, tokens through decoder graphs."""
