"""cfn-lint, CloudFormation's limits, and what a reader of the console sees."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from typing import Any

import pytest

from coldstream.archive.staged_segment import RANGE_BYTES, SPOOLED_RANGES
from coldstream.archive.upload import PUTS_AT_ONCE
from coldstream.manifest.entry import Encoding
from coldstream.store import settings
from coldstream.units import MIB
from tests.support.cloudformation import TEMPLATE, Stack, references

LIMITS = {"Parameters": 200, "Resources": 500, "Outputs": 200, "Mappings": 200}
MAX_BYTES = 1_000_000
"""Limit of a template in S3, where SAM puts it; in a request it would be 51,200."""


def test_the_template_is_what_cloudformation_takes() -> None:
    lint = [sys.executable, "-c", "from cfnlint.runner import main; main()", "--include-checks", "I", "--"]
    done = subprocess.run([*lint, str(TEMPLATE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_it_keeps_within_cloudformations_limits(whole: Stack) -> None:
    assert len(TEMPLATE.read_bytes()) < MAX_BYTES
    for section, most in LIMITS.items():
        assert len(whole.document.get(section, {})) <= most
    for name, properties in whole.of_type("AWS::IAM::ManagedPolicy").items():
        assert characters(properties["PolicyDocument"]) <= 6_144, name
    for name, properties in whole.of_type("AWS::IAM::Role").items():
        assert sum(characters(policy["PolicyDocument"]) for policy in properties["Policies"]) <= 10_240, name
        assert characters(properties["AssumeRolePolicyDocument"]) <= 2_048, name
    assert characters(whole.properties("BucketPolicy")["PolicyDocument"]) <= 20_480


def characters(document: Any) -> int:
    """Count the characters of a policy as IAM does, without white space."""
    return len(json.dumps(document, separators=(",", ":")))


def test_every_parameter_and_condition_is_used(stack: Stack) -> None:
    document = stack.document
    used = references({section: document[section] for section in ("Globals", "Resources", "Outputs", "Rules")})
    used |= references({name: document["Conditions"][name] for name in used & document["Conditions"].keys()})
    assert document["Parameters"].keys() <= used
    assert document["Conditions"].keys() <= used


def test_every_parameter_has_a_default_a_description_and_its_place_in_the_console(stack: Stack) -> None:
    parameters = stack.document["Parameters"]
    groups = stack.document["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert [name for group in groups for name in group["Parameters"]] == sorted(
        parameters, key=[name for group in groups for name in group["Parameters"]].index
    )
    for name, parameter in parameters.items():
        assert {"Type", "Default", "Description"} <= parameter.keys(), name
        bounds = {"AllowedPattern", "AllowedValues", "MinValue"}
        assert bounds & parameter.keys() or name == "JwtAudience", f"{name} takes anything"
        if "AllowedPattern" in parameter:
            assert "ConstraintDescription" in parameter or name == "SparkRelease", name


def test_parameters_have_the_defaults_and_bounds_of_the_settings(stack: Stack) -> None:
    parameters = stack.document["Parameters"]
    fragment, expiry = parameters["FragmentBytes"], parameters["UrlExpirySeconds"]
    assert (fragment["MinValue"], fragment["Default"]) == (settings.MIN_FRAGMENT_BYTES, settings.DEFAULT_FRAGMENT_BYTES)
    assert fragment["MaxValue"] <= settings.MAX_FRAGMENT_BYTES
    assert (expiry["Default"], expiry["MaxValue"]) == (settings.DEFAULT_URL_EXPIRY_S, settings.MAX_URL_EXPIRY_S)
    default = settings.Settings("bucket", "table")
    encoding, level = parameters["Encoding"], parameters["CompressionLevel"]
    assert (encoding["Default"], encoding["AllowedValues"]) == (default.encoding, list(Encoding))
    assert (level["Default"], level["MaxValue"]) == (default.compression_level, settings.MAX_COMPRESSION_LEVEL)
    assert parameters["Prefix"]["Default"] == default.prefix
    assert parameters["IamPermissions"]["Default"] == str(default.iam_permissions).lower()
    assert parameters["JwtPermissions"]["Default"] == str(default.token_permissions).lower()
    assert parameters["JwtScopeClaim"]["Default"] == default.scope_claim


def test_what_an_upload_spools_fits_into_its_temporary_storage(stack: Stack) -> None:
    fragments = (PUTS_AT_ONCE + 1) * stack.document["Parameters"]["FragmentBytes"]["MaxValue"]
    ranges = SPOOLED_RANGES * RANGE_BYTES
    assert fragments + ranges < stack.properties("UploadFunction")["EphemeralStorage"]["Size"] * MIB


@pytest.mark.parametrize("parameters", [{}, {"Prefix": "a/", "JwtIssuer": "https://x", "WithSpark": "true"}])
def test_the_outputs_are_what_agents_clients_and_operators_need(parameters: dict[str, str]) -> None:
    outputs = Stack(**parameters).outputs
    always = {"Bucket", "Table", "EventBus", "ResolverUrl"}
    always |= {"AgentPolicy", "ClusterAgentPolicy", "QueueArchivePolicy", "ClientPolicy", "AlarmTopic"}
    always |= {"DeadLetterQueue", "DeadLetterQueueArn", "UploadQueueArn"}
    sometimes = {"Prefix", "ResolverJwtUrl", "SparkApplication", "SparkJobRole", "SparkFiles"}
    assert set(outputs) == (always | sometimes if parameters else always)
    assert all(outputs.values())


def test_sam_is_told_where_to_build_and_what_it_may_create() -> None:
    config = tomllib.loads((TEMPLATE.parent / "samconfig.toml").read_text())
    deploy = config["default"]["deploy"]["parameters"]
    assert config["default"]["validate"]["parameters"]["lint"]
    assert deploy["capabilities"] == "CAPABILITY_IAM"
    assert deploy["confirm_changeset"]


def test_no_role_or_policy_has_a_name_of_ours_that_would_need_another_capability(whole: Stack) -> None:
    for kind, name in (("AWS::IAM::Role", "RoleName"), ("AWS::IAM::ManagedPolicy", "ManagedPolicyName")):
        assert not any(name in properties for properties in whole.of_type(kind).values())
