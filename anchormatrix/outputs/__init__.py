"""What the forms compute: are these outputs pictures, and are they the same one?"""
