"""Files on disks and in buckets: the only code that tells the two apart.

`paths` opens, copies and publishes files and folders; `leases` are locks that work on any storage;
`block_cache` reads arrays in buckets block by block.
"""
