"""The status of every error of the ledger, of its requests and of its server."""

from typing import Final

from ledger import errors
from ledger.api.kit import request_errors
from ledger.api.kit.writing import server_errors
from ledger.api.kit.writing.statuses import UNKNOWN, Kind

AGAIN = "Nothing was written. Send the same request again with the same key."

KINDS: Final[dict[type[errors.LedgerError], Kind]] = {
    # Refused: recorded; the same key gets the same refusal
    errors.Refused: Kind(409, ""),
    errors.InsufficientCredits: Kind(402, "The request needs {requested:credit|credits}; {available:is|are} available."),
    errors.Shortfall: Kind(402, "The account lacks {shortfall:credit|credits}."),
    errors.EntryNotFound: Kind(404, "Entry {sequence} of {credit_type} does not exist."),
    errors.NotRefundable: Kind(409, "Entry {sequence} is of kind {kind}; only a spend can be refunded."),
    errors.RefundExceedsSpend: Kind(
        409, "Spend {sequence} has {refundable:credit|credits} left to refund; the request asks for {requested}."
    ),
    errors.NotRevocable: Kind(409, "Entry {sequence} is of kind {kind}; only a grant can be revoked."),
    errors.RevocationExceedsGrant: Kind(
        409, "Grant {sequence} has {revocable:credit|credits} left to revoke; the request asks for {requested}."
    ),
    # These pass: nothing is recorded, and the same key may succeed later
    errors.LotLimit: Kind(409, "The account has {open_lots:open lot|open lots}; the limit is {limit}."),
    errors.BalanceLimit: Kind(409, "The account can have at most {limit:credit|credits} that others sent."),
    errors.HoldLimit: Kind(409, "The open holds would hold {held_lots:lot|lots}; the limit is {limit}."),
    errors.TransfersRefused: Kind(409, "{to} refuses transfers from others."),
    errors.NotAHold: Kind(409, "Entry {sequence} is of kind {kind}; only a hold can be captured, released or extended."),
    errors.HoldClosed: Kind(409, "Hold {sequence} is closed: {how}."),
    errors.CaptureExceedsHold: Kind(409, "Hold {sequence} holds {held:credit|credits}; the request asks for {requested}."),
    errors.UnknownRate: Kind(409, "Rate {rate} of {credit_type} does not exist."),
    errors.AmountLimit: Kind(409, "One operation moves at most {limit:credit|credits}."),
    # Retryable: nothing was written
    errors.Retryable: Kind(503, AGAIN, retry_after_seconds=1),
    errors.HolderBusy: Kind(503, AGAIN, retry_after_seconds=range(1, 5)),
    errors.LockBusy: Kind(409, "Another process holds this lock. Nothing was written; try again later."),
    server_errors.DatabaseUnavailable: Kind(503, AGAIN, retry_after_seconds=2),
    server_errors.ServerUnavailable: Kind(503, AGAIN, retry_after_seconds=1),
    server_errors.DiskFull: Kind(503, AGAIN, retry_after_seconds=60),
    errors.UnsafeDatabase: Kind(
        503,
        "The database does not give the guarantees that the ledger needs; the ledger does not use it.",
        retry_after_seconds=60,
    ),
    # Written or not
    errors.OutcomeUnknown: Kind(
        503, "The connection broke during COMMIT. Send the same request with the same key to learn the outcome.", UNKNOWN, 1
    ),
    errors.LedgerError: Kind(500, "The log has the details under this request_id.", UNKNOWN),
    # The request is wrong
    errors.Invalid: Kind(400, "`errors` lists every fault."),
    errors.IdempotencyKeyReused: Kind(422, "Another request has used this Idempotency-Key. A new request needs a new key."),
    errors.BatchRejected: Kind(409, "Operation {index} failed, so the ledger executed no operation of the batch."),
    errors.AccountMovedOn: Kind(412, "The last entry is {sequence}, not {expected}. Read the account again before you retry."),
    request_errors.RequestError: Kind(400, ""),
    request_errors.MalformedRequest: Kind(400, "`errors` lists every fault."),
    request_errors.InvalidRequest: Kind(400, "`errors` lists every fault."),
    request_errors.IdempotencyKeyMissing: Kind(400, "`errors` lists every fault."),
    request_errors.IdempotencyKeyInvalid: Kind(400, "`errors` lists every fault."),
    request_errors.Unauthenticated: Kind(401, "Send `Authorization: Bearer <api key>` with a valid key."),
    request_errors.ScopeMissing: Kind(403, "The key needs the scope {scope}."),
    server_errors.Forbidden: Kind(403, "The server does not allow this request."),
    request_errors.NotFound: Kind(404, "The resource does not exist, or this key may not see it."),
    request_errors.MethodNotAllowed: Kind(405, "The Allow header lists the supported methods."),
    request_errors.NotAcceptable: Kind(406, "This path serves {served}."),
    request_errors.BodyTimeout: Kind(408, "The body must arrive within {seconds} s. Nothing was executed."),
    request_errors.BodyTooLarge: Kind(413, "The body must be at most {limit_bytes} bytes."),
    request_errors.UnsupportedMediaType: Kind(415, "Send {accepted} in UTF-8, uncompressed."),
    request_errors.TooManyRequests: Kind(429, "Try again in {retry_after_seconds} s."),
    # The response would be too large
    errors.DocumentTooLong: Kind(409, "The document would have {rows:row|rows}; a PDF has at most {limit}."),
}
