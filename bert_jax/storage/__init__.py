"""Files on disks and in buckets: the only code that knows where a path lies.

`paths` opens, copies and completes files and folders; `leases` are locks that hold on any storage;
`block_cache` reads arrays in buckets piece by piece.
"""
