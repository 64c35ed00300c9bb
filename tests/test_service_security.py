"""What the service refuses: strangers, foreign sites, what is too large, and what reaches out of its folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from planner.cli import main
from planner.service import security
from planner.service.settings import Limits
from tests.service_cases import API, SMALL, service

TOKEN = "0123456789abcdef0123456789abcdef"
UNKNOWN = "0123456789"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with service(tmp_path_factory.mktemp("open")) as client:
        yield client


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("around") / "files"
    folder.mkdir()
    (folder / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n0,10,5\n1,10,5\n")
    (folder.parent / "outside.csv").write_text("arrival_s,input_tokens,output_tokens\n0,10,5\n")
    (folder / "link.csv").symlink_to(folder.parent / "outside.csv")
    (folder / "own.py").write_text("raise SystemExit('imported')\n")
    return folder


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Iterator[TestClient]:
    """A service with a token, and a folder of files."""
    limits = Limits(requests=100_000, simulated_requests=10_000_000)
    with service(tmp_path_factory.mktemp("guarded"), token=TOKEN, files=files, limits=limits) as client:
        yield client


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# -- who may ask --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "planner.example"])
def test_an_address_that_others_reach_needs_a_token(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host", host, "--port", "0"]) == 2
    assert "token" in capsys.readouterr().err


@pytest.mark.parametrize("token", ["short", "", "with a space in the middle of it", "ünsafe-ünsafe-ünsafe"])
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(
    token: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text(token, encoding="utf-8")
    assert main(["serve", "--host", "0.0.0.0", "--token-file", str(file)]) == 2
    assert "--token-file" in capsys.readouterr().err


def test_without_the_token_nothing_is_told_but_that_the_service_lives(guarded: TestClient) -> None:
    document = guarded.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        url = re.sub(r"\{(\w+)(:path)?\}", UNKNOWN, path)
        for method in operations:
            answer = guarded.request(method, url, json={} if method == "post" else None)
            if url in security.OPEN:
                assert answer.status_code != 401 or "/session" in url
            else:
                assert answer.status_code == 401, (method, url)
                assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "headers",
    [bearer("0123456789abcdef0123456789abcdee"), bearer(""), {"Authorization": TOKEN}, {"Authorization": "Basic abc"}],
)
def test_a_wrong_token_is_no_token(guarded: TestClient, headers: dict[str, str]) -> None:
    assert guarded.get(f"{API}/jobs", headers=headers).status_code == 401


def test_the_token_opens_the_service(guarded: TestClient) -> None:
    assert guarded.get(f"{API}/jobs", headers=bearer()).status_code == 200


def test_a_session_opens_it_to_a_browser_until_it_logs_out(tmp_path: Path) -> None:
    with service(tmp_path, token=TOKEN) as client:
        assert client.get(f"{API}/session").json() == {"required": True, "authenticated": False}
        assert client.post(f"{API}/session", json={"token": TOKEN[:-1]}).status_code == 401
        answer = client.post(f"{API}/session", json={"token": TOKEN})
        attributes = answer.headers["set-cookie"].lower()
        assert "httponly" in attributes
        assert "samesite=strict" in attributes
        assert TOKEN not in attributes
        assert client.get(f"{API}/jobs").status_code == 200
        assert client.delete(f"{API}/session").status_code == 204
        assert client.get(f"{API}/jobs").status_code == 401


def test_a_session_ends_with_its_time_its_token_and_any_change_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = security.Sessions(TOKEN)
    value = sessions.new()
    assert sessions.is_valid(value)
    assert not security.Sessions(TOKEN[::-1]).is_valid(value)
    expiry, _, signature = value.partition(".")
    for forged in (f"{int(expiry) + 1}.{signature}", f"{expiry}.{signature[:-1]}", expiry, "", ".", "٣.x"):
        assert not sessions.is_valid(forged)
    later = security.time.time() + security.SESSION_S + 1
    monkeypatch.setattr(security.time, "time", lambda: later)
    assert not sessions.is_valid(value)


# -- from where ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""])
def test_a_name_that_was_rebound_to_this_machine_is_refused(client: TestClient, host: str) -> None:
    for path in ("/", f"{API}/jobs"):
        assert client.get(path, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080"])
def test_this_machine_is_called_by_its_own_names(client: TestClient, host: str) -> None:
    assert client.get(f"{API}/jobs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_other_sites_can_neither_ask_nor_tell(client: TestClient, headers: dict[str, str]) -> None:
    assert client.get(f"{API}/jobs", headers=headers).status_code == 403
    assert client.post(f"{API}/jobs", json={"yaml": SMALL}, headers=headers).status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_form_of_another_site_could_send_is_refused(client: TestClient, kind: str) -> None:
    body = json.dumps({"yaml": SMALL})
    assert client.post(f"{API}/jobs", content=body, headers={"Content-Type": kind}).status_code == 415


def test_no_answer_may_be_read_by_another_site_or_run_what_is_not_its_own(client: TestClient) -> None:
    for path in ("/", "/static/index.html", "/api/docs", f"{API}/jobs", f"{API}/nothing", "/static/../app.py"):
        headers = client.get(path, headers={"Origin": "http://127.0.0.1"}).headers
        assert "access-control-allow-origin" not in headers
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'unsafe" not in policy
        assert "http" not in policy


def test_no_page_loads_anything_from_elsewhere(client: TestClient) -> None:
    for path in ("/", "/api/docs"):
        page = client.get(path).text
        assert not re.search(r"(?:src|href)\s*=\s*['\"]?(?:https?:)?//", page), path


# -- how much -----------------------------------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_refused_however_it_is_sent(client: TestClient) -> None:
    body = json.dumps({"yaml": "#" * 200_000})

    def chunks() -> Iterator[bytes]:
        yield from (body[start : start + 10_000].encode() for start in range(0, len(body), 10_000))

    for path in ("/validate", "/jobs"):
        for content in (body, chunks()):
            assert client.post(f"{API}{path}", content=content, headers=JSON).status_code == 413
    assert client.get(f"{API}/jobs").json()["total"] == 0


BOMBS = {
    "aliases": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "merges": "a: &a {k: 1}\n"
    + "".join(
        f"{b}: &{b}\n  {b}k: 1\n  <<: [{','.join(['*' + a] * 9)}]\n"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "nesting": "[" * 100_000,
    "nested mappings": "".join(" " * depth + "a:\n" for depth in range(400)),
    "a long number": "a: " + "9" * 100_000,
    "base 60": "a: 1" + ":59" * 20_000,
    "many keys": "\n".join(f"k{n}: {n}" for n in range(9_000)),
    "itself": "a: &a [*a]",
    "a tag": "!!python/object/apply:os.system ['true']",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_yaml_bombs_are_refused_in_a_moment(client: TestClient, bomb: str) -> None:
    answer = client.post(f"{API}/validate", json={"yaml": BOMBS[bomb]})
    assert answer.status_code == 200
    assert answer.json()["problems"]
    assert client.post(f"{API}/jobs", json={"yaml": BOMBS[bomb]}).status_code == 422


def test_json_that_is_nested_too_deep_is_refused(client: TestClient) -> None:
    for depth in (100, 15_000):
        body = '{"space": ' + '{"a": ' * depth + "1" + "}" * depth + "}"
        answer = client.post(f"{API}/jobs", content=body, headers=JSON)
        assert answer.status_code in (400, 422)
        assert answer.headers["content-type"] == "application/problem+json"


MANY_SEATS = "max_num_seqs: {min: 1, max: 9000}"
TOO_MUCH = {
    "requests": ("workload", {"num_requests: 120": "num_requests: 100001"}),
    "simulations": ("search.budget", {"num_requests: 120": "num_requests: 90000", "max_num_seqs: [8, 64]": MANY_SEATS}),
    "combinations": (
        "space",
        {"max_num_seqs: [8, 64]": f"{MANY_SEATS}\n  block_size: {{min: 1, max: 60000}}"},
    ),
    "a cluster": ("search.executor", {"executor: serial": "executor: ray"}),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_work_beyond_the_limits_is_refused(guarded: TestClient, what: str) -> None:
    field, changes = TOO_MUCH[what]
    space = SMALL
    for old, new in changes.items():
        space = space.replace(old, new)
    answer = guarded.post(f"{API}/jobs", json={"yaml": space}, headers=bearer())
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == field


# -- what is none of theirs ---------------------------------------------------------------------------------------


def with_trace(trace: str) -> str:
    workload = SMALL[SMALL.index("workload:") : SMALL.index("slo:")]
    return SMALL.replace(workload, f"workload: {{trace: {json.dumps(trace)}}}\n")


def validated(client: TestClient, yaml: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = client.post(f"{API}/validate", json={"yaml": yaml}, headers=bearer()).json()[
        "problems"
    ]
    return found


@pytest.mark.parametrize(
    "name",
    ["../outside.csv", "/etc/passwd", "~/x.csv", "a/../../outside.csv", "link.csv", "\\\\host\\x", "missing.csv"],
)
def test_a_space_reads_no_file_but_those_of_the_folder(guarded: TestClient, files: Path, name: str) -> None:
    for yaml, field in (
        (with_trace(name), "workload.trace"),
        (SMALL.replace("meta-llama/Llama-3.1-8B-Instruct", json.dumps(name)), "model"),
        (SMALL + f"coefficients: {json.dumps(name)}\n", "coefficients"),
    ):
        problems = validated(guarded, yaml)
        assert [problem["field"] for problem in problems] == [field]
        assert "root:" not in str(problems)


def test_a_file_of_the_folder_may_be_named(guarded: TestClient) -> None:
    assert validated(guarded, with_trace("trace.csv")) == []


def test_without_a_folder_there_are_no_files(client: TestClient) -> None:
    assert "--files" in str(validated(client, with_trace("trace.csv")))


@pytest.mark.parametrize(
    "routing",
    ["own:Router", "{name: 'own:Router'}", "[random, 'own:Router']", "{name: weighted, scorers: {'own:Scorer': 1}}"],
)
def test_no_client_brings_code(guarded: TestClient, routing: str) -> None:
    yaml = SMALL.replace("  replicas: [1, 2]", f"  replicas: [1, 2]\n  routing: {routing}")
    (problem,) = validated(guarded, yaml)
    assert str(problem["field"]).startswith("space.routing")
    assert "--allow-policies" in str(problem["problem"])


PATHS = [
    "../../jobs.sqlite",
    "..%2f..%2fjobs.sqlite",
    "%2e%2e/%2e%2e/jobs.sqlite",
    "/etc/passwd",
    "plans/../run.json",
    "log.txt",
    "space.json",
    "plans/aaaaaaaaaa.yaml%00",
    ".run.json.1",
]


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_to_what_is_not_listed(client: TestClient, path: str) -> None:
    for prefix in (f"{API}/jobs/{UNKNOWN}/artefacts/", "/static/", "/static/shared/"):
        assert client.get(prefix + path).status_code == 404


@pytest.mark.parametrize("job", ["%2e%2e", "a" * 5000, "0123456789'--", "jobs.sqlite", "%00"])
def test_an_id_that_cannot_be_one_is_unknown(client: TestClient, job: str) -> None:
    for rest in ("", "/front", "/events", "/artefacts/run.json"):
        assert client.get(f"{API}/jobs/{job}{rest}").status_code == 404


def test_processes_of_searches_do_not_know_the_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from planner.service.search_process import child_environment
    from planner.service.settings import Settings

    for name in ("PLANNER_TOKEN", "PLANNER_DATABASE", "PGPASSWORD"):
        monkeypatch.setenv(name, "secret")
    assert "secret" not in child_environment(Settings(tmp_path)).values()
