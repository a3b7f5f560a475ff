"""Draws a physical graph, for a browser.

===========  ===========================================================================================================
`draw`       The drawing of a graph: its boxes, the cells of its drops, and where the boxes are
`boxes`      Boxes of drops: one for each instance of a construct, each logical node, each node manager, island or part
`cells`      Where each drop is in its box: a column for each level of the box, wrapped if it is long, and a row in it
`layers`     Edges between boxes, the layer of each box, and the order of the boxes in a layer
`positions`  Where boxes are: layers from left to right, each a column of boxes or several, in lines like the words of a
             text
`packing`    Packs a drawing for a browser: a JSON object, then the octets of each column
===========  ===========================================================================================================
"""
