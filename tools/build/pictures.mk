# Pictures of the guides: docs/pictures/NAME.txt becomes NAME.svg beside it, which is committed for whoever reads on the web.

.PHONY: pictures
pictures:
	$(Q)for text in docs/pictures/*.txt; do $(PYTHON) tools/pictures/picture.py $$text >$${text%.txt}.svg; done
