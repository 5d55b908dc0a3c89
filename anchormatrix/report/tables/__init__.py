"""The report's tables as text, once, for the page and for the Markdown: the same facts in both."""
