"""Whether what a form's name promises was seen to happen."""
