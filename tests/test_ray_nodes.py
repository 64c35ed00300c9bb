"""A search on a Ray cluster of two nodes, one of which is killed: it costs batches, and no byte of the result."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from planner.search.session import SearchOptions, search
from planner.space import parse_space

cluster_utils = pytest.importorskip("ray.cluster_utils")

SPACE = {
    "name": "nodes",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "workload": {
        "kind": "lengths",
        "input": 300,
        "output": 60,
        "num_requests": 600,
        "arrival": {"process": "poisson", "rate_rps": 8},
    },
    "slo": ["ttft_mean_ms <= 60000"],
    "objectives": [{"minimize": "ttft_mean_ms"}, {"minimize": "gpus"}],
    "space": {"gpu": "H100", "max_num_seqs": [4, 6, 8, 12, 16, 24, 32, 64], "replicas": [1, 2, 3, 4, 5, 6]},
    "search": {"method": "exhaustive", "early_stop": False},
}
FILES = ("evaluations.jsonl", "front.json", "front.csv")


def test_a_node_killed_in_mid_search_costs_no_byte(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(SPACE))
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        doomed = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        out = tmp_path / "cluster"
        command = [sys.executable, "-m", "planner.cli", "search", "space.yaml", "--out", str(out), "--quiet"]
        command += ["--no-reuse", "--ray-address", cluster.address]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as driver:
            log = out / FILES[0]
            deadline = time.monotonic() + 120
            while not (log.exists() and log.read_bytes().count(b"\n") >= 4):
                assert driver.poll() is None, driver.stderr and driver.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert log.read_bytes().count(b"\n") < 40  # of 48: the search goes on
            cluster.remove_node(doomed, allow_graceful=False)
            _, said = driver.communicate(timeout=180)
        assert driver.returncode == 0, said
    finally:
        cluster.shutdown()
    search(parse_space(SPACE, tmp_path), SearchOptions(tmp_path / "serial", executor="serial", reuse=False))
    for name in FILES:
        assert (out / name).read_bytes() == (tmp_path / "serial" / name).read_bytes()
