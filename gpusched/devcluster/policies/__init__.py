"""ValidatingAdmissionPolicies: rules in CEL that a cluster's owner sets over everybody's writes."""
