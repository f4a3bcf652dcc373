"""Who makes a request: principals, cookies and the authorization of open connections."""
