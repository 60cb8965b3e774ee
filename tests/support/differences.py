"""Where an emulated AWS is known to differ from the real one: tests that must fail on it, by name, and why.

docs/local-aws.md says what follows from each.
"""

from __future__ import annotations

from collections.abc import Mapping

_CHECKSUMS = "takes bytes of any checksum"
_PARTS = "lists no checksums of parts"
_CONDITIONS = "copies whatever the condition says"
_LINE_FEED = "has no address for a key with a line feed"
_GONE = "fails at an upload that is gone"
_OLD_SIGNATURES = "takes signatures of any age"

DIFFERENCES: Mapping[str, Mapping[str, str]] = {
    "moto": {
        "test_bytes_of_another_checksum_are_refused[s3]": _CHECKSUMS,
        "test_parts_and_wholes_of_another_checksum_are_refused[s3]": _CHECKSUMS,
        "test_what_an_upload_has_is_listed_by_number[s3]": _PARTS,
        "test_staging_that_was_cut_off_goes_on_with_the_parts_that_are_there": _PARTS,
        "test_a_copy_of_another_object_than_expected_is_a_conflict[s3]": _CONDITIONS,
        "test_an_upload_that_is_gone_takes_no_part_and_is_not_completed[s3]": _GONE,
        "test_an_upload_that_is_gone_takes_no_copied_part[s3]": _GONE,
        "test_a_part_copied_of_another_object_than_expected_is_a_conflict[s3]": _CONDITIONS,
        "test_a_part_copied_past_the_end_is_refused[s3]": "copies what there is of a range",
        "test_a_whole_of_copied_parts_of_another_checksum_is_refused[s3]": _CHECKSUMS,
        "test_a_presigned_url_grants_its_own_range_alone": "checks no signatures",
        "test_a_deletion_for_a_claim_that_is_over_is_refused[s3-one]": _OLD_SIGNATURES,
        "test_a_deletion_for_a_claim_that_is_over_is_refused[s3-many]": _OLD_SIGNATURES,
        "test_a_listed_key_is_the_objects_own[s3-line feed]": _LINE_FEED,
        "test_exactly_the_key_is_deleted[s3-line feed]": _LINE_FEED,
        "test_versions_are_deleted_for_good[s3-hostile]": "lists versions without encoding their keys",
        "test_what_is_not_there_cannot_be_held[s3]": "fails at a hold on nothing",
        "test_an_archived_object_has_to_be_restored_before_it_is_copied[s3]": "copies parts of archived objects",
        "test_an_unfinished_upload_has_the_time_at_which_it_began[s3]": "lets every upload begin in 2010",
        "test_the_envelope_names_the_account": "leaves the account out of events",
        "test_a_letter_of_eventbridges_is_archived_once_it_is_moved_to_the_upload_queue": "moves no messages",
    },
    "localstack": {
        "test_a_deletion_for_a_claim_that_is_over_is_refused[s3-one]": _OLD_SIGNATURES,
        "test_a_deletion_for_a_claim_that_is_over_is_refused[s3-many]": _OLD_SIGNATURES,
        "test_unfinished_uploads_are_listed_with_exactly_their_keys[s3]": "does not encode the keys of uploads",
        "test_a_listing_begins_past_a_key[s3]": "compares encoded keys with the one to begin past",
        "test_the_bucket_forgets_what_nobody_comes_for": "its CloudFormation leaves out lifecycles",
        "test_logs_are_kept_as_long_as_the_template_says": "its CloudFormation leaves out retention",
    },
}
