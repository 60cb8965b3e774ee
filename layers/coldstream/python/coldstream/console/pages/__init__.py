"""The pages of the console, each a function from a request to an answer. They block, and run in threads."""
