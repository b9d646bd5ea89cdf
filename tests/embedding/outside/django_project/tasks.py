"""A worker of Celery that charges orders. Its messages come at least once; each order is charged once."""

import os
from pathlib import Path

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_of_ours.settings")
FOLDER = Path(__file__).resolve().parent / "messages"
FOLDER.mkdir(exist_ok=True)

app = Celery("tasks", broker="filesystem://", backend=f"file://{FOLDER}", set_as_current=True)
app.conf.broker_transport_options = {name: str(FOLDER) for name in ("data_folder_in", "data_folder_out", "control_folder")}
app.conf.task_acks_late = True
app.conf.broker_connection_retry_on_startup = True


@app.task(name="charge")
def charge(holder: str, number: int) -> bool:
    """Charge an order of 10 credits."""
    import orders

    return orders.place_if_possible(holder, number, 10)


@app.task(name="place")
def place(holder: str, number: int) -> int:
    """Place an order of one credit. Returns the balance afterwards."""
    import orders

    return orders.place_order(holder, number, 1)
