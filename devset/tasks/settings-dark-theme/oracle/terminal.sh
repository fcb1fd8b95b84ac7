# step: Set the theme to dark
sed -i 's/"theme": "light"/"theme": "dark"/' ~/Documents/notes/settings.json

