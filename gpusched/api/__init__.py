"""What the cluster says, decoded and checked: bytes in, frozen entities or ``Rejected`` out."""
