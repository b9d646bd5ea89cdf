"""Settings. Everything that differs between machines is an environment variable; see docs/how-to/operations/settings.md."""

from datetime import timedelta
from pathlib import Path

import environ
from csp.constants import NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE

from ledger import conf
from ledger_project import logs
from ledger_project.database import connection_urls
from ledger_project.operators import appearance
from ledger_project.serving.postgres import credentials

env = environ.Env()

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = credentials.data_dir_from_environment()

DEBUG = env.bool("DEBUG", False)
EMBEDDED_SERVER = not env.str("DATABASE_URL", "")
SECRET_KEY = env.str("SECRET_KEY", "") or credentials.secret_key(DATA_DIR)
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
# Where processes for calls redirect browsers that request a page: this address, or this port of the same host.
PAGES_URL = env.str("LEDGER_PAGES_URL", "").rstrip("/")
PAGES_PORT = int(env.str("LEDGER_PAGES_PORT", "") or 8001)
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "ledger_project.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "axes",
    "django_otp",
    "django_otp.plugins.otp_totp",
    "django_otp.plugins.otp_static",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    # Before billing, one of whose commands it changes.
    "ledger_project",
    "ledger",
    "ledger.cluster",
    "ledger.exchange",
    "ledger.keys",
    "ledger.portal",
    "ledger.rest",
    "ledger.shadow",
    "ledger.signals",
    "ledger.staff",
    "ledger.statements",
    "ledger.totals",
    "billing",
    "billing.books",
    "billing.dunning",
    "billing.payments",
    "billing.statements_in",
    "billing.tax_services",
    "ledger_project.operators",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "ledger_project.serving.static_files.StaticFiles",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_otp.middleware.OTPMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "ledger_project.operators.middleware.OperatorMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "ledger_project.urls"
ASGI_APPLICATION = "ledger_project.asgi.application"
APPEND_SLASH = False
# The form of a plan with 100 prices, as a browser without scripts sends it, has some 4,000 fields.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000
# For an operator who opens /admin/login/ itself: the form has its own way back only if another page led to it.
LOGIN_REDIRECT_URL = "admin:index"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # Before those of the applications: these replace templates of unfold.
        "DIRS": [BASE_DIR / "ledger_project" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASE_URL = env.str("DATABASE_URL", "") or credentials.credentials_of(DATA_DIR).application_url
# The role that owns the tables, for `prepare_database` and `serve`. Another server's DATABASE_URL may be the owner's itself.
OWNER_DATABASE_URL = (
    env.str("LEDGER_OWNER_DATABASE_URL", "") or env.str("DATABASE_URL", "") or credentials.credentials_of(DATA_DIR).owner_url
)
# The role that gets the application's rights, where it exists.
LEDGER_APP_ROLE = env.str("LEDGER_APP_ROLE", credentials.APPLICATION)
DATABASES = {
    "default": connection_urls.parse(DATABASE_URL)
    | {
        "CONN_HEALTH_CHECKS": True,
        "CONN_MAX_AGE": env.int("DATABASE_CONN_MAX_AGE", 600),
        # A server-side cursor outside a transaction does not survive PgBouncer's transaction mode.
        "DISABLE_SERVER_SIDE_CURSORS": env.bool("DATABASE_BEHIND_PGBOUNCER", False),
    }
}

# Headers for browsers -------------------------------------------------------------------------------

CSRF_FAILURE_VIEW = "ledger_project.api.error_handlers.csrf_failure"
# Pages get scripts, styles and pictures from here and nowhere else. Alpine, which the admin's pages are made with, evaluates the
# expressions in its attributes, and sets styles on elements.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, UNSAFE_EVAL],
        "style-src": [SELF, UNSAFE_INLINE],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}
# Set where a proxy speaks TLS with the clients and says so in X-Forwarded-Proto: pages are then served over HTTPS only.
HTTPS = env.bool("LEDGER_HTTPS", False)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if HTTPS else 0
# The ledger decides for its own host only, not for other hosts of the domain, and not that browsers ship with it in their list.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

# Who guesses passwords ---------------------------------------------------------------------------------

AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
# A name is locked for the address that guessed; not for its owner at another address, and no other name at the same address.
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_CLIENT_IP_CALLABLE = "ledger.telemetry.request_origins.client_address"
AXES_LOCKOUT_CALLABLE = "ledger_project.operators.login_page.locked_out"
# ledger_project.operators.operator_pages makes its page, in the design of the others.
AXES_ENABLE_ADMIN = False
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False
# The parts of a failed login that are not stored as typed.
AXES_SENSITIVE_PARAMETERS = ["username", "ip_address", "code"]

# Two-step login: the groups that must have it, `all` for every operator, empty if it is optional for everybody.
LEDGER_TWO_STEP = env.list("LEDGER_TWO_STEP", default=[])
OTP_TOTP_ISSUER = "Credit ledger"

PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

LOGGING = logs.configuration(form=env.str("LEDGER_LOG_FORMAT", "text"), level=env.str("LEDGER_LOG_LEVEL", "INFO"))

LANGUAGE_CODE = "en-us"
FORMAT_MODULE_PATH = "ledger_project.operators"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
# Where the docs are as a site, if `make docs` or the image has built them.
DOCS_DIR = Path(env.str("LEDGER_DOCS_DIR", "") or BASE_DIR / "dist" / "docs")
WHITENOISE_USE_FINDERS = True
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "ledger_project.serving.static_files.StorageWithDigests"},
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# The ledger ------------------------------------------------------------------------------------------

# ledger/conf.py has the meaning of each setting, and its value where none is given.
LEDGER = {
    setting.name: env.get_value(f"LEDGER_{setting.name}", cast=type(setting.default))
    for setting in conf.SETTINGS
    if f"LEDGER_{setting.name}" in env.ENVIRON
}
# Mail, which only signals are sent by: LEDGER_SIGNAL_MAIL_FROM.
vars().update(env.email_url("EMAIL_URL", default="smtp://localhost:25"))
# The token for /metrics; without one there is no /metrics. `serve` makes one.
METRICS_TOKEN = env.str("LEDGER_METRICS_TOKEN", "")
# Where `audit_ledger --anchor-write` stores anchors, for `doctor` and /metrics to see the age of the newest.
ANCHOR_DIR = Path(env.str("LEDGER_ANCHOR_DIR")) if env.str("LEDGER_ANCHOR_DIR", "") else None
# Spans of OpenTelemetry; its own OTEL_… variables say where they go (docs/how-to/operations/monitoring.md).
TRACING = env.bool("LEDGER_TRACING", False)
# Providers of payments, where the deployment has their secrets (docs/how-to/take-payments.md).
STRIPE_API_KEY = env.str("LEDGER_STRIPE_API_KEY", "")
STRIPE_PAYMENTS = "billing.payments.providers.stripe_payments.StripeProvider"
STRIPE_SECRETS = {"api_key": STRIPE_API_KEY, "event_secret": env.str("LEDGER_STRIPE_EVENT_SECRET", "")}
PAYMENT_PROVIDERS = {"stripe": {"class": STRIPE_PAYMENTS, **STRIPE_SECRETS}} if STRIPE_API_KEY else {}
# The provider of taxes (docs/how-to/bring-a-tax-provider.md): Stripe Tax, with the tax codes of tax classes.
STRIPE_TAX_API_KEY = env.str("LEDGER_STRIPE_TAX_API_KEY", "")
STRIPE_TAX = "billing.tax_services.stripe_tax.StripeTax"
TAX_PROVIDER = (
    {"class": STRIPE_TAX, "api_key": STRIPE_TAX_API_KEY, "tax_codes": env.dict("LEDGER_STRIPE_TAX_CODES", default={})}
    if STRIPE_TAX_API_KEY
    else {}
)
LEDGER_BOOTSTRAP_API_KEY = env.str("LEDGER_BOOTSTRAP_API_KEY", "")

# Admin -----------------------------------------------------------------------------------------------

# The badge of each page: "live", or "test" where nobody's money is at stake.
LEDGER_ENVIRONMENT = env.str("LEDGER_ENVIRONMENT", "") or ("test" if DEBUG or not env.str("DATABASE_URL", "") else "live")

UNFOLD = appearance.UNFOLD

# REST ------------------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    # `ledger.rest.kit.endpoint` authenticates calls. A view of REST framework that is not an Endpoint admits nobody.
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAdminUser"],
    "DEFAULT_SCHEMA_CLASS": "ledger.rest.kit.schema.CallSchema",
    "EXCEPTION_HANDLER": "ledger_project.api.error_handlers.no_such_docs",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Credit ledger",
    "DESCRIPTION": (
        "An append-only ledger of credits, and the billing on top of it. Send your API key as `Authorization: Bearer <key>`. "
        "Every write needs an `Idempotency-Key`: the same key and body again return the first response. Every error is an "
        "`application/problem+json` that says whether the request took effect. [All paths](/v1/) · "
        "[this document as JSON](/v1/schema)"
    ),
    "TAGS": [
        {"name": "Credits", "description": "Start here: grant credits, spend them, give them back."},
        {
            "name": "Budgets",
            "description": "How much may be spent in a window of time: by an account, by each member of a team, by an API key.",
        },
        {"name": "History", "description": "Balances, entries and refusals. Reads take no lock."},
        {
            "name": "Holds",
            "description": "Set credits aside for work whose price is not known yet, then capture or release them.",
        },
        {"name": "Rates", "description": "Spend by quantity: named prices in credits."},
        {"name": "Batches", "description": "Up to 1,000 operations in one request."},
        {"name": "Recurring grants", "description": "Credits every day, week, month or year, without a subscription."},
        {"name": "Catalogue", "description": "Billing: customers, plans, prices and coupons."},
        {"name": "Subscriptions", "description": "Plans of customers, and their changes."},
        {"name": "Usage", "description": "Events that metered prices count."},
        {"name": "Invoices", "description": "From drafts to paid invoices and credit notes."},
        {
            "name": "Payments",
            "description": "Money for invoices and packs, also from providers; purchases; money that went back.",
        },
        {"name": "Books", "description": "What sold credits are worth: deferred revenue by month, and at an instant."},
        {"name": "Operation", "description": "Whether the process is alive and can serve requests. These calls need no key."},
        {"name": "Signals", "description": "Webhooks get what happens, signed and in order. Alerts say when an account is low."},
        {
            "name": "Shadow",
            "description": "What the ledger would decide beside another system of balances, until its holders move in, and back.",
        },
        {"name": "Customer's page", "description": "Links to a page on which a customer sees balance, usage and invoices."},
        {"name": "API keys", "description": "The API key of a request, and what it may do."},
        {"name": "About", "description": "The paths of this API."},
    ],
    "SORT_OPERATIONS": False,
    "VERSION": "1",
    "SERVERS": [{"url": "/", "description": "The server that this document comes from."}],
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "APPEND_COMPONENTS": {
        "securitySchemes": {
            "apiKey": {"type": "http", "scheme": "bearer", "description": "An API key; it is shown once, when it is made."}
        }
    },
    "SORT_OPERATION_PARAMETERS": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "PREPROCESSING_HOOKS": ["ledger_project.api.documented_schemas.without_second_spellings"],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "ledger_project.api.documented_problems.document_problems",
        "ledger_project.api.documented_schemas.simplify_schemas",
    ],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {
        "PriceKindEnum": ["recurring", "usage"],
        "BudgetModeEnum": ["hard", "soft"],
        "DeliveryStateEnum": ["pending", "delivered", "given_up"],
        "ApiKeyStateEnum": ["active", "expired", "revoked"],
        "EntryKindEnum": "ledger.rules.kinds.KINDS",
        "SourceEnum": ["purchased", "promotional"],
        "IntervalEnum": ["day", "week", "month", "year"],
        "UnitEnum": ["day", "week", "month", "quarter", "half_year", "year"],
        "LotSourceEnum": ["purchased", "promotional", "postpaid"],
        "ShareEnum": ["prorate", "keep", "full"],
    },
}
