"""What the package's modules log, in the log of a function."""

from __future__ import annotations

import logging

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers

_PACKAGE = "coldstream"


def log_with(logger: Logger) -> None:
    """Have the package's modules log as the function itself does: JSON, with the facts that they give and the error.

    Lambda's own handler would write their messages alone: "a page failed", and nothing of the page.
    """
    logging.getLogger(_PACKAGE)  # Powertools knows registered loggers alone
    copy_config_to_registered_loggers(logger, include={_PACKAGE})
