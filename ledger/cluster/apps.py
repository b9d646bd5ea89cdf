"""The cluster as a Django application."""

from ledger import applications


class ClusterConfig(applications.LedgerApplication):
    """More than one machine: the ledger's tables by holder on the nodes of a Citus cluster."""

    name = "ledger.cluster"
    label = "ledger_cluster"
    verbose_name = "Cluster"
