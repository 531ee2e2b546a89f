"""From verified files to a module, once per content and process."""
