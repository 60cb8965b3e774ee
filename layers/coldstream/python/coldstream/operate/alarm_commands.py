"""What to run next when an alarm rings; docs/operations.md has a section for each, by the same names."""

from __future__ import annotations

from collections.abc import Mapping

ALARM_COMMANDS: Mapping[str, str] = {
    "DeadLettersAlarm": "coldstream dead-letters list",
    "OldestEventAlarm": "coldstream dead-letters list, then raise UploadConcurrency if the function is always busy",
    "QuarantineAlarm": "coldstream quarantine list",
    "LossAlarm": "coldstream describe STREAM",
    "UploadFailuresAlarm": "aws logs tail /aws/lambda/STACK-upload --since 1h",
    "UploadErrorsAlarm": "aws logs tail /aws/lambda/STACK-upload --since 1h",
    "UploadThrottlesAlarm": "aws lambda get-account-settings",
    "ResolverFailuresAlarm": "aws logs tail /aws/lambda/STACK-resolver --since 1h",
    "ResolverErrorsAlarm": "aws logs tail /aws/lambda/STACK-resolver --since 1h",
    "ResolverThrottlesAlarm": "aws lambda get-account-settings",
    "ApiFailuresAlarm": "aws logs tail /aws/lambda/STACK-api --since 1h",
    "ApiErrorsAlarm": "aws logs tail /aws/lambda/STACK-api --since 1h",
    "QuietAlarm": "coldstream agent status, on each broker",
    "TableErrorsAlarm": "aws health describe-events",
    "TableThrottlesAlarm": "aws service-quotas list-service-quotas --service-code dynamodb",
    "RetentionErrorsAlarm": "aws logs tail /aws/lambda/STACK-retention --since 1d",
    "SweepErrorsAlarm": "aws logs tail /aws/lambda/STACK-sweep --since 1d",
    "GarbageErrorsAlarm": "aws logs tail /aws/lambda/STACK-garbage --since 1d",
    "ScrubErrorsAlarm": "aws logs tail /aws/lambda/STACK-scrub --since 1d",
    "EraseErrorsAlarm": "aws logs tail /aws/lambda/STACK-erase --since 1d",
    "DamageAlarm": "coldstream scrub",
    "JobDeadLettersAlarm": "aws logs tail /aws/lambda/STACK-job-runner --since 1d",
    "JobFailuresAlarm": "coldstream jobs list --state failed",
    "JobRunnerErrorsAlarm": "aws logs tail /aws/lambda/STACK-job-runner --since 1h",
    "JobTickErrorsAlarm": "aws logs tail /aws/lambda/STACK-job-tick --since 1h",
}
"""By the alarm's name in the template, which CloudWatch's name of it contains."""

FALLBACK = "read its section in docs/operations.md"


def command_for(alarm: str, stack: str) -> str:
    """Return what to run for an alarm, by CloudWatch's name of it: `STACK-QuietAlarm-1ABC`."""
    found = (command for name, command in ALARM_COMMANDS.items() if name in alarm)
    return next(found, FALLBACK).replace("STACK", stack)
