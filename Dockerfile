# Three images: `app` (web servers, invoice worker, preparation), `pgbouncer` and `proxy` (nginx).

FROM debian:12.12-slim AS pgbouncer
RUN apt-get update \
    && apt-get install --yes --no-install-recommends pgbouncer \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner postgres --group postgres --mode 700 /run/pgbouncer
COPY deploy/pgbouncer/start /usr/local/bin/start-pgbouncer
USER postgres
EXPOSE 6432
CMD ["start-pgbouncer"]

FROM debian:12.12-slim AS proxy
RUN apt-get update \
    && apt-get install --yes --no-install-recommends nginx-light openssl \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner www-data --group www-data --mode 700 /run/nginx
COPY deploy/nginx/start deploy/nginx/nginx.conf /srv/nginx/
USER www-data
EXPOSE 8080 8443
CMD ["/srv/nginx/start"]

FROM python:3.11.14-slim-bookworm AS installed
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 DJANGO_SETTINGS_MODULE=ledger_project.settings
RUN useradd --system --uid 10001 --no-create-home ledger
WORKDIR /srv/ledger
# requirements-tracing.txt has OpenTelemetry besides, for LEDGER_TRACING.
ARG REQUIREMENTS=requirements.txt
COPY requirements.txt requirements-tracing.txt ./
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps --requirement $REQUIREMENTS
COPY manage.py LICENSE ./
COPY ledger ledger
COPY billing billing
COPY ledger_project ledger_project
RUN python -m compileall -q ledger billing ledger_project

# The docs as a site. What builds it is in no image that is run.
FROM installed AS docs
COPY requirements-docs.txt mkdocs.yml ./
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps --requirement requirements-docs.txt
COPY docs docs
RUN NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

FROM installed AS app
COPY --from=docs /srv/ledger/dist/docs dist/docs
# The admin explains the alerts of the monitoring by their rules and by this page.
COPY deploy/prometheus/alerts.yml deploy/prometheus/
COPY docs/how-to/operations/alerts.md docs/how-to/operations/
USER ledger
EXPOSE 8000 8001
CMD ["python", "-m", "ledger_project.serving.web"]
