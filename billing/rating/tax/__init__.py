"""Tax: what a line bears (`rules`), who finds it (`sales`), what it is (`amounts`), ids and categories of VAT (`vat`). Pure."""

from billing.rating.tax.amounts import (
    AppliedTax,
    IncludedGroup,
    Taxable,
    TaxLine,
    Treatment,
    applied_taxes,
    rounding_of_included,
    tax_minor,
    taxes,
    without_tax,
)
from billing.rating.tax.rules import (
    ALIASES,
    STANDARD_CLASS,
    DeclaredTax,
    Place,
    TaxNotDeclared,
    TaxPolicy,
    TaxRules,
    versions_on,
)
from billing.rating.tax.sales import (
    FoundTax,
    LineTaxes,
    NotUsable,
    Party,
    Sale,
    SaleLine,
    Taxed,
    TaxProvider,
    ensure_usable,
    in_order,
)
from billing.rating.tax.vat import (
    CATEGORY_OF,
    EU,
    NOTES,
    STANDARD,
    LookupOutcome,
    TaxBehavior,
    VatIdWrong,
    VatStatus,
    category_for,
    checked_vat_id,
    relied_vat_id,
    suggested_status,
    vat_country,
    vat_status_of,
)

__all__ = [
    "ALIASES", "CATEGORY_OF", "EU", "NOTES", "STANDARD", "STANDARD_CLASS", "AppliedTax", "DeclaredTax", "FoundTax",
    "IncludedGroup", "LineTaxes", "LookupOutcome", "NotUsable", "Party", "Place", "Sale", "SaleLine", "TaxBehavior", "TaxLine",
    "TaxNotDeclared", "TaxPolicy", "TaxProvider", "TaxRules", "Taxable", "Taxed", "Treatment", "VatIdWrong", "VatStatus",
    "applied_taxes", "category_for", "checked_vat_id", "ensure_usable", "in_order", "relied_vat_id", "rounding_of_included",
    "suggested_status", "tax_minor", "taxes", "vat_country", "vat_status_of", "versions_on", "without_tax",
]  # fmt: skip
