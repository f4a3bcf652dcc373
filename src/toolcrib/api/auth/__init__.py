"""Authentication: principals, cookies, and the authorization of long-lived connections."""
