"""Secrets of a configuration: what is one, what stands in its place, and who gets it."""

from __future__ import annotations

import json
import re

import pytest

from anchormatrix.config.merge import load_settings
from anchormatrix.config.secrets import (
    VARIABLE,
    looks_secret,
    masked,
    revealed,
    revealed_values,
    shell_assignment,
    shell_word,
    without_secrets,
)
from anchormatrix.errors import ConfigError


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setenv(VARIABLE, "{}")


SECRET = """
HF_TOKEN HUGGING_FACE_HUB_TOKEN OPENAI_API_KEY WANDB_API_KEY DB_PASSWORD AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID
GITHUB_TOKEN_RO --api-key clientSecret apiKey PGPASSWORD MYSQL_PWD SSHPASS token password Authorization X_AUTH
SECRET_KEY_2 http_cookie API_KEYS HF_TOKENS PASSWORDS COOKIES KEY --auth -api-key GH_PAT DOCKER_AUTH hfToken credentials
"""
PLAIN = """
TOKENIZERS_PARALLELISM key_file key_frames KEY_FILE HF_TOKEN_PATH PWD OLDPWD HCCL_HOST
text_encoder known_hosts PATH cell keep_nights MONKEY kv_heads PASS_THROUGH author keys_per_head SECRET_FILE
"""


@pytest.mark.parametrize("name", SECRET.split())
def test_a_name_that_looks_secret(name):
    assert looks_secret(name)


@pytest.mark.parametrize("name", PLAIN.split())
def test_a_name_that_does_not(name):
    assert not looks_secret(name)


def test_every_place_of_a_configuration_that_can_hold_one():
    hidden = without_secrets(
        {
            "secrets": ["MY_OWN"],
            "host": {"env": {"HF_TOKEN": "hf_1234567", "MY_OWN": "own-value", "PLAIN": "seen"}},
            "engine": {
                "command": ["docker", "exec", "-e", "HF_TOKEN=hf_7654321", "box"],
                "extra_args": ["--api-key", "sk-abcdef", "--api-key=sk-ghijkl", "--seed", "7", "--token"],
                "env": {"HTTPS_PROXY": "http://me:letmein@proxy:8080", "NO_PROXY": "http://proxy:8080"},
                "options": {"login": {"credentials": {"user": "me", "pass": ["a-pass-word"]}}},
            },
            "nightly": {"hook": ["tell", "--webhook-token", "T0K3NT0K3N"]},
        }
    )
    assert hidden == {
        "secrets": ["MY_OWN"],
        "host": {
            "env": {"HF_TOKEN": "{secret:host.env.HF_TOKEN}", "MY_OWN": "{secret:host.env.MY_OWN}", "PLAIN": "seen"}
        },
        "engine": {
            "command": ["docker", "exec", "-e", "HF_TOKEN={secret:engine.command.3.HF_TOKEN}", "box"],
            "extra_args": [
                "--api-key", "{secret:engine.extra_args.1.api-key}", "--api-key={secret:engine.extra_args.2.api-key}",
                "--seed", "7", "--token",
            ],
            "env": {"HTTPS_PROXY": "{secret:engine.env.HTTPS_PROXY}", "NO_PROXY": "http://proxy:8080"},
            "options": {
                "login": {
                    "credentials": {
                        "user": "{secret:engine.options.login.credentials.user}",
                        "pass": ["{secret:engine.options.login.credentials.pass.0}"],
                    }
                }
            },
        },
        "nightly": {"hook": ["tell", "--webhook-token", "{secret:nightly.hook.2.webhook-token}"]},
    }  # fmt: skip
    assert revealed("{secret:host.env.HF_TOKEN} {secret:host.env.MY_OWN}") == "hf_1234567 own-value"
    assert (
        revealed("{secret:engine.extra_args.1.api-key} {secret:engine.extra_args.2.api-key}") == "sk-abcdef sk-ghijkl"
    )
    assert without_secrets(hidden) == hidden


@pytest.mark.parametrize("name", ["MAX_TOKENS", "sequence_tokens", "--max-num-batched-tokens"])
def test_a_number_of_tokens_is_no_secret(name):
    assert not looks_secret(name, 4096)
    assert not looks_secret(name, "4096")
    assert looks_secret("API_KEYS", "sk-1,sk-2")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--header", "Authorization: Bearer X1234567"], ["--header", "Authorization: ?"]),
        (["-H", "X-Api-Key: X1234567"], ["-H", "X-Api-Key: ?"]),
        (["--env=HF_TOKEN=X1234567"], ["--env=HF_TOKEN=?"]),
        (['--json={"api_key": "X1234567", "n": 1}'], ['--json={"api_key": "?", "n": 1}']),
        (["sh", "-c", "export HF_TOKEN=X1234567; serve"], ["sh", "-c", "export HF_TOKEN=?; serve"]),
        (["https://a.b/c?access_token=X1234567&n=1"], ["https://a.b/c?access_token=?&n=1"]),
        (["https://X123456789012345@a.b/"], ["?"]),
        (["https://hooks.slack.com/services/T/B/X1234567"], ["?"]),
        (["-u", "bob:X1234567"], ["-u", "?"]),
        (["-api-key", "X1234567"], ["-api-key", "?"]),
        (["-e", "PASSWORD=two X1234567"], ["-e", "PASSWORD=?"]),
        (["--token", "--seed", "7"], ["--token", "--seed", "7"]),
        (["--max-tokens", "4096", "--chat=a: b"], ["--max-tokens", "4096", "--chat=a: b"]),
    ],
)
def test_a_secret_among_other_words(words, shown):
    hidden = without_secrets({"engine": {"extra_args": words}})["engine"]["extra_args"]
    assert [re.sub(r"\{secret:[^{}]+\}", "?", word) for word in hidden] == shown
    assert [revealed(word) for word in hidden] == words
    assert without_secrets({"engine": {"extra_args": hidden}})["engine"]["extra_args"] == hidden


def test_a_listed_name_in_any_writing_and_a_number():
    hidden = without_secrets(
        {"secrets": ["MY_THING"], "engine": {"extra_args": ["--my-thing", "X"], "options": {"api_key": 123456}}}
    )["engine"]
    assert hidden == {
        "extra_args": ["--my-thing", "{secret:engine.extra_args.1.my-thing}"],
        "options": {"api_key": "{secret:engine.options.api_key}"},
    }


def test_a_value_from_the_environment(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_of-the-shell")
    hidden = without_secrets({"engine": {"env": {"HF_TOKEN": "{secret}"}, "extra_args": ["--key={secret:HF_TOKEN}"]}})
    assert hidden == {
        "engine": {"env": {"HF_TOKEN": "{secret:engine.env.HF_TOKEN}"}, "extra_args": ["--key={secret:HF_TOKEN}"]}
    }
    assert revealed("{secret:engine.env.HF_TOKEN} {secret:HF_TOKEN}") == "hf_of-the-shell hf_of-the-shell"


def test_a_request_gets_the_value_and_a_prompt_is_left_alone():
    hidden = without_secrets(
        {"workload": {"prompt": "{secret}", "extra_params": {"hub_token": "hf_1234567", "seeds": [1, {"a": 0.5}]}}}
    )["workload"]
    assert hidden["prompt"] == "{secret}"
    assert hidden["extra_params"]["hub_token"] == "{secret:workload.extra_params.hub_token}"
    assert revealed_values(hidden["extra_params"]) == {"hub_token": "hf_1234567", "seeds": [1, {"a": 0.5}]}


def test_a_reference_that_nothing_is_known_of(monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=r"^engine.env.HF_TOKEN: the value of this secret is not known here; "):
        revealed("{secret:engine.env.HF_TOKEN}")


def test_names_that_are_no_list():
    with pytest.raises(ConfigError, match="secrets: 'HF_TOKEN' is no list of names"):
        without_secrets({"secrets": "HF_TOKEN"})


def test_what_comes_back_from_outside_is_masked():
    value = 'hf_"quoted"\\n'
    without_secrets({"engine": {"env": {"HF_TOKEN": value, "PIN_TOKEN": "1234"}}})
    place = "{secret:engine.env.HF_TOKEN}"
    assert masked(f"{value} pin 1234") == f"{place} pin 1234"  # too short to be told from ordinary text
    assert masked(json.dumps({"api_key": value})) == json.dumps({"api_key": place})
    assert masked(f"Namespace(api_key={value!r})") == f"Namespace(api_key='{place}')"


def test_a_command_to_paste_names_the_variable():
    assert shell_assignment("HF_TOKEN", "{secret:engine.env.HF_TOKEN}") == 'HF_TOKEN="$HF_TOKEN"'
    assert shell_assignment("HF_TOKEN", "hf_of an older file") == 'HF_TOKEN="$HF_TOKEN"'
    assert shell_assignment("PLAIN", "a b") == "PLAIN='a b'"
    assert shell_word("--api-key={secret:engine.extra_args.1.api-key}") == '--api-key="$api_key"'


def test_the_settings_hold_no_value(tmp_path):
    file = tmp_path / "host.yaml"
    file.write_text(
        "host: {alias: h, env: {HF_TOKEN: hf_1234567}}\n"
        "engine: {kind: vllm-omni, model: m, extra_args: [--api-key, sk-1234567]}\n"
        "nightly: {hook: [tell, PASSWORD=pw-1234567]}\n",
        encoding="utf-8",
    )
    settings = load_settings(file)
    assert "1234567" not in repr(settings)
    assert settings.host.env == {"HF_TOKEN": "{secret:host.env.HF_TOKEN}"}
