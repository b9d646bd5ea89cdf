"""The parameters in paths and headers of the ledger's calls: account, entry or rate, and the state that a client has seen."""

from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from ledger.values import BUDGET_NAME, CREDIT_TYPE, HOLDER_ID, MAX_SEQUENCE, RATE_CODE

HOLDER_PATH = OpenApiParameter(
    "holder",
    {"type": "string", "pattern": f"^{HOLDER_ID.pattern}$", "minLength": 1, "maxLength": 64},
    OpenApiParameter.PATH,
    description="The owner of the credits. A new holder has no credits; its first grant creates it.",
    examples=[OpenApiExample("holder", "customer-42")],
)
CREDIT_TYPE_PATH = OpenApiParameter(
    "credit_type",
    {"type": "string", "pattern": f"^{CREDIT_TYPE.pattern}$", "minLength": 1, "maxLength": 32},
    OpenApiParameter.PATH,
    description="What is counted.",
    examples=[OpenApiExample("credit type", "credits")],
)
SEQUENCE_PATH = OpenApiParameter(
    "sequence",
    {"type": "integer", "format": "int64", "minimum": 1, "maximum": MAX_SEQUENCE},
    OpenApiParameter.PATH,
    description="The number of the entry in its account: 1, 2, 3 …",
    examples=[OpenApiExample("sequence", 1)],
)
BUDGET_PATH = OpenApiParameter(
    "budget",
    {"type": "string", "pattern": f"^{BUDGET_NAME.pattern}$", "minLength": 1, "maxLength": 40},
    OpenApiParameter.PATH,
    description="The name of the budget.",
    examples=[OpenApiExample("budget", "daily")],
)
RECURRING_PATH = OpenApiParameter(
    "recurring_grant",
    {"type": "string", "pattern": f"^{BUDGET_NAME.pattern}$", "minLength": 1, "maxLength": 40},
    OpenApiParameter.PATH,
    description="The name of the recurring grant.",
    examples=[OpenApiExample("recurring_grant", "monthly")],
)
RATE_PATH = OpenApiParameter(
    "code",
    {"type": "string", "pattern": f"^{RATE_CODE.pattern}$", "minLength": 1, "maxLength": 64},
    OpenApiParameter.PATH,
    description="The name of the rate.",
    examples=[OpenApiExample("code", "gpt-4o.output")],
)
IF_MATCH_HEADER = OpenApiParameter(
    "If-Match",
    {"type": "string", "pattern": r'^("(0|[1-9][0-9]{0,18})"|\*)$'},
    OpenApiParameter.HEADER,
    description="The ETag of the balance that you read: the write needs an account without a later entry. `*` sets no condition.",
    examples=[OpenApiExample("tag", "*")],
)
IF_NONE_MATCH_HEADER = OpenApiParameter(
    "If-None-Match",
    {"type": "string"},
    OpenApiParameter.HEADER,
    description="ETags of balances that you know: the response is 304 if one of them is current.",
    examples=[OpenApiExample("tag", '"7"')],
)
ETAG_HEADER = OpenApiParameter(
    "ETag",
    {"type": "string"},
    OpenApiParameter.HEADER,
    description="The sequence of the account's last entry; for If-Match on a write, and for If-None-Match here.",
    response=[200, 304],
)
