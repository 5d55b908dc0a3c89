"""The folder of leases, in which every user of a host can write."""
