"""The attribution of a step: where its time goes. One module per question; tables in, tables out."""
