"""The embedded virtual host: vendor tools and a serving engine that behave like real ones, from one scenario file."""
