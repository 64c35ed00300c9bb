"""An nginx configuration that spreads requests over a plan's replicas as the simulated routing does."""

from __future__ import annotations

from planner.export._base import SimulatedPlan
from planner.export.vllm_serve import FIRST_PORT, placement, ports

# Routing policy -> nginx's directive for its upstream group ("": nginx's default is round-robin).
METHODS = {"round-robin": "", "random": "random;", "least-loaded": "least_conn;"}


def nginx_config(plan: SimulatedPlan) -> str:
    """The configuration; hosts are node0, node1, ... where the replicas need more than one machine."""
    nodes = [node for node, _ in placement(plan)]
    hosts = ["127.0.0.1" if max(nodes) == 0 else f"node{node}" for node in nodes]
    method = METHODS[plan.policy("routing")]
    servers = [f"        server {host}:{port};" for host, port in zip(hosts, ports(plan), strict=True)]
    return "\n".join(
        [
            f'# Routing of plan {plan.id}: {plan.policy("routing")}. Start with: nginx -c "$PWD/nginx.conf"',
            "worker_processes 1;  # one process, so that there is one order of requests",
            "daemon off;",
            "error_log stderr;",
            f"pid /tmp/nginx-{plan.id}.pid;",
            "events { worker_connections 16384; }",
            "http {",
            "    upstream replicas {",
            *([f"        {method}"] if method else []),
            *servers,
            "        keepalive 1024;",
            "    }",
            "    access_log off;",
            "    client_max_body_size 256m;  # prompts of many tokens are long bodies",
            "    server {",
            f"        listen {FIRST_PORT};",
            "        location / {",
            "            proxy_pass http://replicas;",
            "            proxy_http_version 1.1;",
            '            proxy_set_header Connection "";',
            "            proxy_buffering off;  # pass every token on as it comes",
            "            proxy_read_timeout 1h;",
            "        }",
            "    }",
            "}",
            "",
        ]
    )
