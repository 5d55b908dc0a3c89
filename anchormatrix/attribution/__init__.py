"""From a kernel table to where the time of a step goes. One module per question; tables in, tables out."""
