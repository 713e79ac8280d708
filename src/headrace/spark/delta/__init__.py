"""Delta tables as sinks: Parquet written by Python workers, committed once by the driver. (DESIGN D8)"""
