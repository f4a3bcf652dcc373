"""What a command did to files: import, classification and live trees."""
