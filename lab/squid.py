"""squid as a proxy in front of one origin: what it needs to keep nothing, to write nothing but its errors, and to end at once."""

QUIET = """never_direct allow all
http_access allow all
cache deny all
access_log none
cache_log stdio:/dev/stderr
cache_store_log none
pid_filename none
coredump_dir /
pinger_enable off
digest_generation off
shutdown_lifetime 0 seconds
"""
