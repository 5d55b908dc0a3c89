"""The configuration's records: what each key may be, the things a run is about, the policies, the whole."""
