"""A program over a grid of parameters and seeds, on this machine's cores or on a Dask cluster."""
