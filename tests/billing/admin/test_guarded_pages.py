"""Pages beside those of a model's rows are for operators with the page's permission, whether there is such a row or not."""

from uuid import UUID

import pytest

from billing import permissions as billing
from ledger.operators import permissions as ledger
from ledger.totals import permissions as totals
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db

PAGES = {
    "/admin/ledger/account/locks/": ledger.VIEW_LOCKS,
    "/admin/ledger/account/month-end/": totals.VIEW_DAILYTOTAL,
    "/admin/ledger/account/month-end/rows/": totals.VIEW_DAILYTOTAL,
    "/admin/ledger/account/journal/": billing.VIEW_INVOICE,
    "/admin/ledger/account/holders/ada/": ledger.VIEW_ACCOUNT,
    "/admin/ledger/account/holders/ada/statement/": ledger.VIEW_ENTRYLISTING,
    "/admin/billing/subscription/1/usage/": billing.VIEW_USAGEEVENT,
    f"/admin/billing/run/{UUID(int=1)}/outcomes/": billing.VIEW_RUN,
    "/admin/billing/customer/1/coupons/WELCOME/take/": billing.CHANGE_CUSTOMERCOUPON,
}


@pytest.mark.parametrize(("address", "permission"), PAGES.items())
def test_a_page_is_for_those_with_its_permission(address, permission):
    others = {*PAGES.values()} - {permission}
    assert operator(*others, name="without").get(address).status_code == 403
    assert operator(permission, name="with").get(address).status_code in (200, 302, 404)
