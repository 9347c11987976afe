"""Programs that read HTTP, each as a proxy in front of one origin that remembers what it got: nginx, Apache, HAProxy and squid."""

import shutil

from lab import squid

from .http_ends import PORT as ORIGIN_PORT
from .topology import SERVER4

NGINX = """daemon off; master_process off; pid {folder}/judge-nginx.pid; error_log stderr crit;
events {{ }}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    server {{
        listen {port};
        location / {{ proxy_pass http://{origin}; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
"""

APACHE = """ServerRoot {folder}
ServerName judge
PidFile {folder}/apache.pid
DefaultRuntimeDir {folder}
ErrorLog /dev/stderr
LogLevel crit
User www-data
Group www-data
Listen {port}
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so
LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so
ServerLimit 1
StartServers 1
ThreadsPerChild 16
MaxRequestWorkers 16
MinSpareThreads 1
MaxSpareThreads 16
ProxyPass "/" "http://{origin}/" retry=0
"""

HAPROXY = """
defaults
    mode http
    timeout connect 5s
    timeout client 5s
    timeout server 5s
frontend pages
    bind :{port}
    default_backend origin
backend origin
    server s {origin}
"""

SQUID = """
http_port {port} accel defaultsite=a.org allow-direct
cache_peer {host} parent {origin_port} 0 no-query no-digest no-netdb-exchange originserver name=origin connect-fail-limit=100000
cache_peer_access origin allow all
""" + squid.QUIET

# The name, the port, the configuration and the command of each.
JUDGES = {
    "nginx": (8101, NGINX, ["nginx", "-e", "stderr", "-c"]),
    "apache2": (8102, APACHE, ["apache2", "-D", "FOREGROUND", "-f"]),
    "haproxy": (8103, HAPROXY, ["haproxy", "-db", "-f"]),
    "squid": (8104, SQUID, ["squid", "-N", "-f"]),
}


def start(site, name, namespace=None):
    """Starts one in the site's server namespace, or another one: the process, which is to be stopped so that its children end, and its port."""
    port, config, words = JUDGES[name]
    assert shutil.which(name), f"{name} is not installed: scripts/setup installs it"
    path = site.folder / f"{name}.conf"
    origin = f"{SERVER4}:{ORIGIN_PORT}"
    path.write_text(config.format(folder=site.folder, port=port, origin=origin, host=SERVER4, origin_port=ORIGIN_PORT))
    process = site.start(namespace or site.server, [*words, path], name)
    process.wait_listening(port, 20)
    return process, port
