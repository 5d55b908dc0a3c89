"""The outlook before anything is measured: what a matrix can tell, how many sessions it takes, how long they last."""
