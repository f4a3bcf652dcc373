"""What commands did to files: import, classification and live trees."""
