"""`planner serve`: the service on an address, until it is told to end."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
from pathlib import Path

import uvicorn

from planner.service.security import SHORTEST_TOKEN, is_loopback
from planner.service.settings import DEFAULT_PORT, GIB, KIB, Limits, Settings
from sim.errors import InputError

TOKEN = "PLANNER_TOKEN"
DATABASE = "PLANNER_DATABASE"
END_WITHIN_S = 5  # for requests that are being answered, when the service ends
CONNECTIONS = 1000
SWITCH_S = 0.0005  # between threads: short, so that reading a large run holds up no small answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `planner serve`."""
    limits = Limits()
    add = parser.add_argument

    def limit(option: str, metavar: str, what: str, default: float) -> None:
        most = f"the most {what} (default: {default:,.0f})"
        add(option, type=_count, default=int(default), metavar=metavar, help=most)

    add("--host", default="127.0.0.1", help="the address to listen at (default: this machine only)")
    add("--port", type=_port, default=DEFAULT_PORT, help=f"the port, 0 for a free one (default: {DEFAULT_PORT})")
    add("--data", type=Path, default=Path("service"), metavar="DIR", help="where jobs are kept (default: service)")
    add("--database", metavar="URL", help=f"keep the list of jobs in Postgres (or ${DATABASE}; default: SQLite in DIR)")
    add("--token-file", type=Path, metavar="FILE", help=f"the bearer token that clients must show (or ${TOKEN})")
    add("--allow-host", action="append", default=[], metavar="NAME", help="a name that it is reached by; repeat it")
    add("--files", type=Path, metavar="DIR", help="a folder whose traces and model configs spaces may name")
    add("--allow-policies", action="store_true", help="run policies of your own out of --files: any client's code")
    add("--workers", type=_count, metavar="N", help="processes of one search (default: one a processor)")
    limit("--max-running", "N", "searches at a time", limits.running)
    limit("--max-queued", "N", "searches that wait", limits.queued)
    limit("--max-job-s", "S", "seconds that a search takes", limits.job_s)
    limit("--max-job-gb", "GB", "GiB of memory that a process of a search takes", limits.job_bytes // GIB)
    limit("--max-requests", "N", "requests of a workload", limits.requests)
    limit("--max-work", "N", "candidates x requests of a search", limits.simulated_requests)
    limit("--max-body-kb", "KB", "KiB of a request's body", limits.body_bytes // KIB)
    limit("--max-streams", "N", "event streams at a time", limits.streams)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text[:9]) <= 65_535:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 65,535, got {text[:20]!r}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:20]) <= 10**15:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text[:20]!r}")
    return int(text)


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that the arguments ask for. Raises InputError for what must not be."""
    token = _token(args.token_file)
    if token is None and not is_loopback(args.host):
        problem = f"{args.host} can be reached from other machines: give a token (--token-file, or ${TOKEN})"
        raise InputError("--host", problem)
    if args.files is not None and not args.files.is_dir():
        raise InputError("--files", f"{args.files} is no directory")
    if args.allow_policies and args.files is None:
        raise InputError("--allow-policies", "needs --files, the folder of their code")
    limits = Limits(
        body_bytes=args.max_body_kb * KIB,
        running=args.max_running,
        queued=args.max_queued,
        requests=args.max_requests,
        simulated_requests=args.max_work,
        job_s=float(args.max_job_s),
        job_bytes=args.max_job_gb * GIB,
        streams=args.max_streams,
    )
    return Settings(
        data=args.data.resolve(),
        database=args.database or os.environ.get(DATABASE) or None,
        host=args.host,
        hosts=tuple(args.allow_host),
        token=token,
        files=None if args.files is None else args.files.resolve(),
        allow_policies=args.allow_policies,
        workers=args.workers,
        limits=limits,
    )


def _token(file: Path | None) -> str | None:
    token = os.environ.get(TOKEN)
    where = f"${TOKEN}"
    if file is not None:
        where = "--token-file"
        try:
            token = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(where, f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if token is None:
        return None
    token = token.strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        problem = f"must be at least {SHORTEST_TOKEN} letters and digits, as `openssl rand -hex 32` makes them"
        raise InputError(where, problem)
    return token


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C. Returns 0."""
    from planner.service.app import create_app

    settings = settings_of(args)
    sys.setswitchinterval(SWITCH_S)
    app = create_app(settings)
    listening = _listen(args.host, args.port)
    logging.basicConfig(format="planner: %(message)s", level=logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # what it would say, the service says itself
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=END_WITHIN_S,
    )
    host, port = listening.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    server = _Server(config, f"Serving http://{name}:{port} (jobs in {settings.data})")
    # The server ends by these signals, and then sends them on: to nobody, for it has done what they ask.
    previous = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listening])
    except SystemExit:  # it did not start
        refusal = getattr(app.state, "refusal", None)
        raise refusal or RuntimeError("the service could not start; the log above says more") from None
    finally:
        listening.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


class _Server(uvicorn.Server):
    """Says where it serves, once it does."""

    def __init__(self, config: uvicorn.Config, words: str) -> None:
        super().__init__(config)
        self._words = words

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(self._words, flush=True)


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises InputError where it cannot."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, kind, protocol, _, address = found[0]
        # Only where the protocol is named does asyncio send at once what is written: 40 ms sooner.
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise InputError("--port", f"cannot listen at {host}:{port}: {error.strerror or error}") from None
    return listening
