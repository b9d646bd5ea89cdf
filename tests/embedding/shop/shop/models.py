"""What the shop itself knows: teams, their orders, and the payments for their credits."""

from django.db import models

from ledger.database.lock_names import LockName, register

PAYMENT = register(LockName("shop_payment", "shop/payment/{reference}", "adding the credits of a payment"))


class Team(models.Model):
    """A customer of the shop. The ledger has its credits."""

    name = models.CharField(max_length=100)
    is_pro = models.BooleanField(default=False)

    @property
    def holder_id(self) -> str:
        """Who has the credits."""
        return f"team-{self.pk}"


class Order(models.Model):
    """Something that a team has ordered for credits."""

    team = models.ForeignKey(Team, models.PROTECT)
    item = models.CharField(max_length=100)
    price = models.PositiveIntegerField()


class Payment(models.Model):
    """Money that is in, as the payment provider says. Its credits are added after that."""

    team = models.ForeignKey(Team, models.PROTECT)
    reference = models.CharField(max_length=100, unique=True)
    credits = models.PositiveBigIntegerField()
    is_settled = models.BooleanField(default=False)


class Bonus(models.Model):
    """Credits that a team was given, once a day."""

    team = models.ForeignKey(Team, models.PROTECT)
    given_at = models.DateTimeField(auto_now_add=True)
