"""What llm-d's configuration has for a prefill and a decode pool: two scheduling profiles, a decider, the KV connector.

As in llm-d's guide to P/D disaggregation and the router's disaggregation plugins (August 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Plugins = list[dict[str, Any]]

# Policy of `disaggregation` -> llm-d's plugin.
DECIDERS = {"always": "always-disagg-pd-decider", "prefix-based": "prefix-based-pd-decider"}
PREFIX_PRODUCER = "approx-prefix-cache-producer"  # which the prefix-based decider reads
HANDLER = "disagg-profile-handler"

# Each engine may send and receive KV; what the values file writes as one argument is quoted for no shell.
KV_TRANSFER = ["--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}']
SIDE_CHANNEL = [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
KV_PORTS = [{"containerPort": 5600, "name": "nixl", "protocol": "TCP"}]


def two_profiles(
    decider: dict[str, Any], decode: tuple[Plugins, Plugins], prefill: tuple[Plugins, Plugins]
) -> tuple[Plugins, dict[str, Plugins]]:
    """Plugins and profiles (by name) of a router between pools, from (plugins, their use) of each pool's routing.

    A plugin that both pools have is one; where its parameters differ the prefill pool's has a name of its own.
    """
    plugins: Plugins = [
        decider,
        {"type": HANDLER, "parameters": {"deciders": {"prefill": decider["type"]}}},
        {"type": "prefill-filter"},
        {"type": "decode-filter"},
        *decode[0],
    ]
    known = {plugin["type"]: plugin for plugin in decode[0]}
    renamed = {}
    for plugin in prefill[0]:
        kind = plugin["type"]
        if known.get(kind) == plugin:
            continue
        if kind in known:
            renamed[kind] = f"prefill-{kind}"
            plugin = {"name": renamed[kind], **plugin}
        plugins.append(plugin)
    types = {plugin["type"] for plugin in plugins}
    if decider["type"] == DECIDERS["prefix-based"] and PREFIX_PRODUCER not in types:
        plugins.append({"type": PREFIX_PRODUCER})
    used = [entry | {"pluginRef": renamed.get(entry["pluginRef"], entry["pluginRef"])} for entry in prefill[1]]
    profiles = {
        "prefill": [{"pluginRef": "prefill-filter"}, *used],
        "decode": [{"pluginRef": "decode-filter"}, *decode[1]],
    }
    return plugins, profiles


def of_profile(config: Mapping[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(plugins, profile) as they would be if pool `name` were the only one; the profile itself if it is."""
    profiles = {profile["name"]: profile for profile in config["schedulingProfiles"]}
    if name not in profiles:
        (profile,) = profiles.values()
        return dict(config), dict(profile)
    prefix = f"{name}-"
    own = {plugin["name"]: plugin["type"] for plugin in config["plugins"] if plugin.get("name", "").startswith(prefix)}
    plugins = [
        plugin
        for plugin in config["plugins"]
        if (plugin.get("name") in own if plugin["type"] in own.values() else "name" not in plugin)
    ]
    used = [
        entry | {"pluginRef": own.get(entry["pluginRef"], entry["pluginRef"])} for entry in profiles[name]["plugins"]
    ]
    return {**config, "plugins": plugins}, {**profiles[name], "plugins": used}


def read_decider(config: Mapping[str, Any]) -> dict[str, Any]:
    """The decider that the configuration's profile handler names, as a policy."""
    (handler,) = (plugin for plugin in config["plugins"] if plugin["type"] == HANDLER)
    (decider,) = (p for p in config["plugins"] if p["type"] == handler["parameters"]["deciders"]["prefill"])
    (name,) = (name for name, kind in DECIDERS.items() if kind == decider["type"])
    threshold = decider.get("parameters", {}).get("nonCachedTokens")
    return {"name": name} | ({} if threshold is None else {"non_cached_tokens": threshold})
