"""Reverse proxies in the middle, which rewrite what a server answers: nginx, Apache, HAProxy and squid.

The client requests pages from the middle's own address, so that no NAT is in the way. Connections to both sides stay open; nothing is
logged or cached. A proxy runs on the middle's core alone, and is started again for each policy.
"""

from evaluation.policies import SERVER_NAME, WORD
from evaluation.topology import MIDDLE, SERVER
from lab import squid

from .base import System

PORT = 80

NGINX = """daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000000;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    upstream server {{ server {server}:{port}; keepalive 256; keepalive_requests 1000000000; }}
    server {{
        listen {near}:{port} backlog=4096;
        location / {{
            proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection "";
            sub_filter "{word}" "{replacement}"; sub_filter_once off;
        }}
    }}
}}
"""

APACHE = """ServerRoot {folder}
ServerName evaluation
PidFile {folder}/apache.pid
DefaultRuntimeDir {folder}
ErrorLog /dev/stderr
LogLevel error
User www-data
Group www-data
Listen {near}:{port}
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule filter_module {modules}/mod_filter.so
LoadModule substitute_module {modules}/mod_substitute.so
LoadModule proxy_module {modules}/mod_proxy.so
LoadModule proxy_http_module {modules}/mod_proxy_http.so
ServerLimit 1
StartServers 1
ThreadsPerChild 256
ThreadLimit 256
MaxRequestWorkers 256
MinSpareThreads 1
MaxSpareThreads 256
MaxConnectionsPerChild 0
MaxKeepAliveRequests 0
KeepAliveTimeout 30
ListenBacklog 4096
ProxyPass "/" "http://{server}:{port}/" keepalive=On
AddOutputFilterByType SUBSTITUTE text/html
Substitute "s/{word}/{replacement}/n"
"""

HAPROXY = """
global
    maxconn 8192
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    http-reuse always
frontend pages
    bind {near}:{port}
    default_backend server
backend server
    http-response set-header Server {name}
    server s {server}:{port}
"""

SQUID = """
http_port {near}:{port} accel defaultsite={server}
cache_peer {server} parent {port} 0 no-query no-digest no-netdb-exchange originserver name=server
cache_peer_access server allow all
client_persistent_connections on
server_persistent_connections on
via off
forwarded_for delete
reply_header_access Server deny all
reply_header_replace Server {name}
""" + squid.QUIET


class Proxy(System):
    """`config` is the text of its configuration, `command` how it is started with it."""

    routed = True
    config = ""
    process = None

    def command(self, path):
        raise NotImplementedError

    def install(self, policy):
        self._stop()
        path = self.folder / f"{self.name}.conf"
        path.write_text(self.filled(policy))
        with self.cores.on_middle():
            self.process = self.site.middle.start(self.command(path), self.folder / f"{self.name}.log")
        self.process.wait_listening(PORT)
        self.site.entrance, self.site.rewriting = MIDDLE["vl"], policy

    def filled(self, policy):
        """The configuration for a policy."""
        return self.config.format(
            folder=self.folder,
            near=MIDDLE["vl"],
            server=SERVER,
            port=PORT,
            word=WORD,
            replacement=policy.replacement(),
            name=SERVER_NAME,
            modules="/usr/lib/apache2/modules",
        )

    def _stop(self):
        """Ends the process with its children, which a signal asks to do so."""
        if self.process is not None:
            self.process.stop()
            self.process.close()
            self.process = None

    def close(self):
        self._stop()
        super().close()


class Nginx(Proxy):
    """One worker. A literal is searched by `sub_filter`."""

    name = "nginx"
    title = "nginx"
    programs = ("nginx",)
    kinds = ("rewrite-body", "rewrite-mask")
    config = NGINX

    def command(self, path):
        return ["nginx", "-p", self.folder, "-e", "stderr", "-c", path]


class Apache(Proxy):
    """One process of its event module with threads. `mod_substitute` searches a literal line by line."""

    name = "apache"
    title = "Apache"
    programs = ("apache2",)
    kinds = ("rewrite-body", "rewrite-mask")
    config = APACHE

    def command(self, path):
        return ["apache2", "-D", "FOREGROUND", "-f", path]


class HaproxyHttp(Proxy):
    """One thread in HTTP mode."""

    name = "haproxy-http"
    title = "HAProxy, HTTP"
    programs = ("haproxy",)
    kinds = ("rewrite-head",)
    config = HAPROXY

    def command(self, path):
        return ["haproxy", "-db", "-f", path]


class Squid(Proxy):
    """One process, without a cache."""

    name = "squid"
    title = "squid"
    programs = ("squid",)
    kinds = ("rewrite-head",)
    config = SQUID

    def command(self, path):
        return ["squid", "-N", "-f", path]


KINDS = (Nginx, Apache, HaproxyHttp, Squid)
